"""What is asked: random problems, and attention as a chain of steps that answers them."""
