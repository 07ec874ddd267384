"""The version of lrurun, where every package can import it: `lrurun` itself names classes of all of them."""

VERSION = "1.0.0"
