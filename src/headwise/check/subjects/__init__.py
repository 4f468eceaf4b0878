"""What is checked: a function or layer, how it is called, what it promises."""
