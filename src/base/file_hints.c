/* file_hints.c - what the kernel is told about the use of a file. All are hints: a system that
 * refuses them loses only time or memory. */
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void strait_file_map_prefetch(const strait_file_map *map, const unsigned char *data, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t first = (size_t)(data - map->data) / page * page;
    const size_t last = (size_t)(data - map->data) + bytes;
    if (map->data == NULL || last <= first) return;
    void *start = (void *)(uintptr_t)(map->data + first); // NOLINT(performance-no-int-to-ptr)
    (void)madvise(start, last - first, MADV_WILLNEED);
}

void strait_file_map_drop_pages(const strait_file_map *map, const unsigned char *data,
                                size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    /* Only whole pages inside the range: its first and last page may belong to a neighbour, too. */
    const size_t first = ((size_t)(data - map->data) + page - 1) / page * page;
    const size_t last = ((size_t)(data - map->data) + bytes) / page * page;
    if (map->data == NULL || last <= first) return;
    void *start = (void *)(uintptr_t)(map->data + first); // NOLINT(performance-no-int-to-ptr)
    (void)madvise(start, last - first, MADV_DONTNEED);
}

/* The kernel itself reads no more than some 100 KB ahead, which few disks are fast with. */
void strait_file_prefetch(FILE *file, size_t at, size_t bytes) {
    (void)posix_fadvise(fileno(file), (off_t)at, (off_t)bytes, POSIX_FADV_WILLNEED);
}

/* Without it the kernel begins only when a tenth of memory waits, and the sync at the end has all
 * of the work. */
void strait_file_begin_write(FILE *file) {
    (void)sync_file_range(fileno(file), 0, 0, SYNC_FILE_RANGE_WRITE);
}
