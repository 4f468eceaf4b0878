"""The version of the package, which stored results carry."""

__version__ = "0.1.0"
