"""Parts of the Keras LSTM classification benchmark."""
