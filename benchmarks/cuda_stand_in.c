/* A CUDA driver whose functions succeed at once, and what torch would tell of the current device and stream. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define SUCCEEDS(name) int name(void) { return 0; }
SUCCEEDS(cuInit) SUCCEEDS(cuCtxSetCurrent) SUCCEEDS(cuCtxSetLimit) SUCCEEDS(cuCtxGetLimit) SUCCEEDS(cuCtxGetDevice)
SUCCEEDS(cuFuncSetAttribute) SUCCEEDS(cuFuncSetCacheConfig) SUCCEEDS(cuGetErrorString) SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuOccupancyMaxActiveClusters) SUCCEEDS(cuStreamIsCapturing) SUCCEEDS(cuDriverGetVersion)
SUCCEEDS(cuTensorMapEncodeIm2col) SUCCEEDS(cuTensorMapEncodeTiled) SUCCEEDS(cuLaunchKernelEx)

int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 200 << 10; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)1; return 0; }
int cuFuncGetAttribute(int *value, int attribute, void *function) { *value = attribute ? 0 : 1024; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = (void *)1; return 0; }
int cuModuleLoadData(void **module, const void *image) { *module = (void *)1; return 0; }
int cuPointerGetAttribute(uint64_t *value, int attribute, uint64_t address) { *value = address; return 0; }

static PyObject *current_device(PyObject *self, PyObject *none) { return PyLong_FromLong(0); }
static PyObject *current_stream(PyObject *self, PyObject *device) { return PyLong_FromLong(0); }
static PyMethodDef methods[] = {
    {"current_device", current_device, METH_NOARGS, NULL}, {"current_stream", current_stream, METH_O, NULL}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "cuda_stand_in", NULL, -1, methods};
PyMODINIT_FUNC PyInit_cuda_stand_in(void) { return PyModule_Create(&module); }
