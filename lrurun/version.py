"""The version of lrurun, where every package can import it: `lrurun` itself names classes of all of them."""

VERSION = "0.2.0.dev0"
