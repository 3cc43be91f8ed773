"""Mathematics: free functions of arrays, and values. No files, clocks, logging, threads or sockets."""
