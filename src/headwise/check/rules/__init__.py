"""The rules that a right attention keeps."""
