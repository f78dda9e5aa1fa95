"""The GPU worker: the driver without torch, memory over CUDA IPC, trial launches on copies between redzones."""
