# cuda_stamp.cmake - computes one digest of all device code, for the program and its module file.
#
# cmake -DFILES="a.cu b.cuh ..." -DHEADER=stamp.h -DTEXT=stamp -P cuda_stamp.cmake

separate_arguments(FILES)
set(digests "")
foreach(file ${FILES})
    file(SHA256 ${file} digest)
    string(APPEND digests ${digest})
endforeach()
string(SHA256 stamp "${digests}")
file(WRITE ${HEADER} "#define STRAIT_CUDA_STAMP \"${stamp}\"\n")
file(WRITE ${TEXT} ${stamp})
