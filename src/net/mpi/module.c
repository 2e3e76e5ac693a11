/* module.c - strait-mpi.so: the calls of module.h, by whichever MPI this file is compiled with. */
#include "module.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(strait_mpi_request), "a handle does not fit");

// NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): callers keep the handles until test ends them

/* MPI is asked for MPI_THREAD_SERIALIZED: each net thread of the process calls it, one at a time.
 */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static MPI_Comm comm = MPI_COMM_NULL; // our own, so that tags cannot meet those of others

static void put(strait_mpi_request *out, MPI_Request request) {
    memcpy(out->bytes, &request, sizeof request);
}

static MPI_Request get(const strait_mpi_request *request) {
    MPI_Request handle;
    memcpy(&handle, request->bytes, sizeof handle);
    return handle;
}

/* "Open MPI v4.1.4, package: ..." up to the comma. */
static const char *name_of(void) {
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    pthread_mutex_lock(&mutex);
    if (version[0] == '\0' && MPI_Get_library_version(version, &n) == MPI_SUCCESS)
        version[strcspn(version, ",\n")] = '\0';
    pthread_mutex_unlock(&mutex);
    return version;
}

/* An error must not end the process: the program says what was lost, and why. */
static int start(void) {
    int level = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) return 0;
    if (level < MPI_THREAD_SERIALIZED || MPI_Comm_dup(MPI_COMM_WORLD, &comm) != MPI_SUCCESS)
        return 0;
    (void)MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return 1;
}

static int rank_of(void) {
    int rank = 0;
    (void)MPI_Comm_rank(comm, &rank);
    return rank;
}

static int size_of(void) {
    int size = 1;
    (void)MPI_Comm_size(comm, &size);
    return size;
}

static int share(const void *mine, size_t bytes, void *all) {
    pthread_mutex_lock(&mutex);
    const int err = MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, comm);
    pthread_mutex_unlock(&mutex);
    return err == MPI_SUCCESS;
}

static int send_to(int rank, int tag, const void *head, size_t head_bytes, const void *body,
                   size_t body_bytes, strait_mpi_request out[2]) {
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (head_bytes > INT_MAX || body_bytes > INT_MAX) return 0;
    pthread_mutex_lock(&mutex);
    int err = MPI_Isend(head, (int)head_bytes, MPI_BYTE, rank, tag, comm, &requests[0]);
    if (err == MPI_SUCCESS && body_bytes > 0)
        err = MPI_Isend(body, (int)body_bytes, MPI_BYTE, rank, tag + 1, comm, &requests[1]);
    pthread_mutex_unlock(&mutex);
    put(&out[0], requests[0]);
    put(&out[1], requests[1]);
    return err == MPI_SUCCESS;
}

static int receive_from(int rank, int tag, void *data, size_t bytes, strait_mpi_request *out) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int source = rank == STRAIT_MPI_ANY ? MPI_ANY_SOURCE : rank;
    if (bytes > INT_MAX) return 0;
    pthread_mutex_lock(&mutex);
    const int err = MPI_Irecv(data, (int)bytes, MPI_BYTE, source, tag, comm, &request);
    pthread_mutex_unlock(&mutex);
    put(out, request);
    return err == MPI_SUCCESS;
}

static int test(strait_mpi_request *request, int *rank, size_t *bytes) {
    MPI_Request handle = get(request);
    MPI_Status status;
    int is_done = 0, n = 0;
    pthread_mutex_lock(&mutex);
    int err = MPI_Test(&handle, &is_done, &status);
    if (err == MPI_SUCCESS && is_done && bytes != NULL) err = MPI_Get_count(&status, MPI_BYTE, &n);
    pthread_mutex_unlock(&mutex);
    put(request, handle);
    if (err != MPI_SUCCESS) return -1;
    if (is_done && rank != NULL) *rank = status.MPI_SOURCE;
    if (is_done && bytes != NULL) *bytes = (size_t)n;
    return is_done != 0;
}

static void cancel(strait_mpi_request *request) {
    MPI_Request handle = get(request);
    if (handle == MPI_REQUEST_NULL) return;
    pthread_mutex_lock(&mutex);
    (void)MPI_Cancel(&handle);
    (void)MPI_Wait(&handle, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&mutex);
    put(request, MPI_REQUEST_NULL);
}

static void stop(void) {
    (void)MPI_Comm_free(&comm);
    (void)MPI_Finalize();
}

static void abort_all(int code) {
    (void)MPI_Abort(MPI_COMM_WORLD, code);
}

__attribute__((visibility("default"))) extern const strait_mpi_module strait_mpi_module_table;

const strait_mpi_module strait_mpi_module_table = {
    .abi = STRAIT_MPI_ABI,
    .name = name_of,
    .start = start,
    .rank = rank_of,
    .size = size_of,
    .share = share,
    .send = send_to,
    .receive = receive_from,
    .test = test,
    .cancel = cancel,
    .stop = stop,
    .abort = abort_all,
};

// NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)
