"""The CPU, through LLVM."""
