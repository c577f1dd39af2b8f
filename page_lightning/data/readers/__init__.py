"""One reader per file format that node-classification graphs are published in."""
