"""The script of a fit: its phases, each one exchange with the network, the same for every driver."""
