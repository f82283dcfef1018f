"""A small embedded model served by llama.cpp on loopback."""
