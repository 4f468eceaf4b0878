"""Lessons, exercises, questions and drills: the founding documents, computed.

``make_book()`` is the book as plain data, ``book_html()`` its page, ``make_drill(level, seed)`` one exercise.
"""

from headwise.learn.book.contents import book_html, make_book
from headwise.learn.drills.drill import Drill, make_drill

__all__ = ["Drill", "book_html", "make_book", "make_drill"]
