"""One model's way through the stack: from the module's source to machine code, each stage tied to the one before."""
