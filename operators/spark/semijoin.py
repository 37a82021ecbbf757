def shipped(prepared):
    return prepared.frame()
