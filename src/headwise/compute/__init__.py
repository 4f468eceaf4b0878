"""Attention on arrays, in the order of the data's way: arrays, problem, plan, run, answers.

``functional`` is the front door of one attention, ``block`` that of a whole multi-head block.
"""
