/* module.h - what strait-mpi.so offers to the program: the few calls of MPI that it needs.
 *
 * The module is the only file that is compiled against MPI's headers, and depends on nothing of
 * Strait, so that the program runs where there is no MPI, and a cluster with another MPI (the
 * handles differ between implementations) compiles this one file again:
 *
 *     mpicc -shared -fPIC -O2 -o strait-mpi.so module.c
 *
 * No call blocks, except start, share and stop, which every rank makes. Calls may come from several
 * threads; the module makes one at a time. All return 0 when they fail, unless they say otherwise.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    STRAIT_MPI_ABI = 1, // rises with every change of the table
    STRAIT_MPI_ANY = -1 // receive from any rank
};

/* A message under way. Large enough for the handle of any implementation. */
typedef struct strait_mpi_request {
    _Alignas(8) unsigned char bytes[16];
} strait_mpi_request;

typedef struct strait_mpi_module {
    uint32_t abi;              // STRAIT_MPI_ABI of the module
    const char *(*name)(void); // of the MPI library, with its version; also before start
    int (*start)(void);
    int (*rank)(void);
    int (*size)(void);
    /* Collects `bytes` from every rank, in their order. */
    int (*share)(const void *mine, size_t bytes, void *all);
    /* Begins to send `head` with this tag and, unless it is empty, `body` with the next; the memory
     * is borrowed until test has reported the end of both. The two are not separated by those of
     * other threads. Messages between two ranks with the same tag arrive in order. */
    int (*send)(int rank, int tag, const void *head, size_t head_bytes, const void *body,
                size_t body_bytes, strait_mpi_request out[2]);
    /* Begins to receive into memory that is borrowed until test has reported the end. */
    int (*receive)(int rank, int tag, void *data, size_t bytes, strait_mpi_request *out);
    /* 1: it has ended, and *rank is the sender of what was received, of *bytes bytes; 0: not yet;
     * -1: it has failed. Both pointers may be NULL. */
    int (*test)(strait_mpi_request *request, int *rank, size_t *bytes);
    void (*cancel)(strait_mpi_request *request); // of a receive that nothing has matched
    void (*stop)(void);                          // waits for all ranks
    void (*abort)(int code);                     // ends all ranks; does not return
} strait_mpi_module;

/* The module's only symbol. */
#define STRAIT_MPI_SYMBOL "strait_mpi_module_table"
