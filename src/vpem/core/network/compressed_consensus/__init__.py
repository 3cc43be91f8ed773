"""`Consensus("auto")`: averages with momentum that continue from the last sum, by quantized changes."""
