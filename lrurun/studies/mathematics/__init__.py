"""The mathematics that several studies share: closed forms, layers, kernels, Hessians, descent."""
