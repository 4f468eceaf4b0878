"""The operator ``headwise::attend``: what torch's autograd and compiler see, and who computes behind it."""
