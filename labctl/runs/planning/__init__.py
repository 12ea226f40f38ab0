"""Planning of trials: their order, predicted times, time-outs and memory."""
