"""What converts ops for the toy device alone."""
