/* restore.c - restore DISK SHADOW SEED: what a power cut could have left of a disk.
 *
 * Each name of a folder is as it was at the folder's last sync, or as it was last; each file has
 * what was synced, or a part of what was written behind it, or all. The seed decides each by
 * itself; seed 0 keeps nothing that was not synced. Afterwards everything counts as synced. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    FILES_MAX = 1024,
    NAME_BYTES = 256
};

typedef unsigned long long number;

static const char *shadow;
static number state; // of the generator; 0: nothing is kept that was not synced

/* Every file and folder that has a name now. */
static struct {
    number inode;
    char path[PATH_BYTES];
} present[FILES_MAX];
static int n_present;

typedef struct name {
    char text[NAME_BYTES];
    number inode;
    int is_folder;
} name;

typedef struct names {
    name items[1024];
    int n;
} names;

static void fail(const char *what, const char *path) {
    (void)fprintf(stderr, "restore: cannot %s %s\n", what, path);
    exit(1);
}

/* Returns 1 with probability one half; always 0 with seed 0. */
static int draw(void) {
    if (state == 0) return 0;
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)(state >> 40 & 1);
}

static void join(char out[PATH_BYTES], const char *folder, const char *text) {
    if (snprintf(out, PATH_BYTES, "%s/%s", folder, text) >= PATH_BYTES) fail("name", folder);
}

static void list_now(const char *folder, names *out) {
    DIR *list = opendir(folder);
    const struct dirent *entry;
    out->n = 0;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        char path[PATH_BYTES];
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        join(path, folder, entry->d_name);
        if (lstat(path, &info) != 0 || out->n == 1024) fail("read", path);
        name *one = &out->items[out->n++];
        (void)snprintf(one->text, sizeof one->text, "%s", entry->d_name);
        one->inode = info.st_ino;
        one->is_folder = S_ISDIR(info.st_mode);
    }
    if (list != NULL) (void)closedir(list);
}

static void list_synced(number inode, names *out) {
    char path[PATH_BYTES], kind = 0;
    (void)snprintf(path, sizeof path, "%s/d-%llu", shadow, inode);
    FILE *file = fopen(path, "r");
    out->n = 0;
    if (file == NULL) return; // never synced: empty
    name *one = out->items;
    while (out->n < 1024 && fscanf(file, " %c %llu %255s", &kind, &one->inode, one->text) == 3) {
        one->is_folder = kind == 'd';
        one = &out->items[++out->n];
    }
    (void)fclose(file);
}

static void find_present(const char *folder) {
    names *list = malloc(sizeof *list);
    list_now(folder, list);
    for (int i = 0; i < list->n; i++) {
        char path[PATH_BYTES];
        join(path, folder, list->items[i].text);
        if (n_present == FILES_MAX) fail("keep track of", path);
        present[n_present].inode = list->items[i].inode;
        (void)snprintf(present[n_present++].path, sizeof present->path, "%s", path);
        if (list->items[i].is_folder) find_present(path);
    }
    free(list);
}

static const char *path_of(number inode) {
    for (int i = 0; i < n_present; i++)
        if (present[i].inode == inode) return present[i].path;
    return "";
}

static char *read_all(const char *path, size_t *n) {
    FILE *file = path[0] != '\0' ? fopen(path, "r") : NULL;
    struct stat info;
    *n = 0;
    if (file == NULL || fstat(fileno(file), &info) != 0) return NULL;
    char *text = malloc((size_t)info.st_size + 1);
    *n = fread(text, 1, (size_t)info.st_size, file);
    (void)fclose(file);
    return text;
}

static void write_all(const char *path, const char *text, size_t n, mode_t mode) {
    FILE *out = fopen(path, "w");
    if (out == NULL || (n > 0 && fwrite(text, 1, n, out) != n)) fail("write", path);
    (void)fchmod(fileno(out), mode);
    if (fclose(out) != 0) fail("write", path);
}

/* Writes one file: the synced bytes, or the current ones, in full or cut somewhere behind. */
static void put_file(number inode, const char *to) {
    char path[PATH_BYTES];
    size_t n_synced = 0, n_now = 0;
    (void)snprintf(path, sizeof path, "%s/f-%llu", shadow, inode);
    char *synced = read_all(path, &n_synced);
    char *now = read_all(path_of(inode), &n_now);
    const int is_longer = now != NULL && n_now > n_synced &&
                          (n_synced == 0 || memcmp(now, synced, n_synced) == 0);
    size_t n = n_synced;
    if (is_longer && draw()) n = draw() ? n_now : n_synced + (n_now - n_synced) / 3;
    struct stat info; // the mode counts: a key that others may read is refused
    const int has_mode = stat(path_of(inode), &info) == 0;
    write_all(to, n > n_synced ? now : synced, n, has_mode ? info.st_mode & 0777 : 0600);
    free(synced);
    free(now);
}

static const name *find(const names *list, const char *text) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i].text, text) == 0) return &list->items[i];
    return NULL;
}

static void put_folder(number inode, const char *to);

static void put_name(const name *one, const char *folder) {
    char path[PATH_BYTES];
    join(path, folder, one->text);
    if (one->is_folder)
        put_folder(one->inode, path);
    else
        put_file(one->inode, path);
}

static void put_folder(number inode, const char *to) {
    names *synced = malloc(sizeof *synced), *now = malloc(sizeof *now);
    list_synced(inode, synced);
    list_now(path_of(inode)[0] != '\0' ? path_of(inode) : "/nonexistent", now);
    if (mkdir(to, 0700) != 0) fail("create", to);
    for (int i = 0; i < synced->n; i++) {
        const name *other = find(now, synced->items[i].text);
        const int has_changed = other == NULL || other->inode != synced->items[i].inode;
        if (!has_changed || !draw())
            put_name(&synced->items[i], to);
        else if (other != NULL)
            put_name(other, to);
    }
    for (int i = 0; i < now->n; i++) // created since the last sync
        if (find(synced, now->items[i].text) == NULL && draw()) put_name(&now->items[i], to);
    free(synced);
    free(now);
}

/* Describes a disk on which everything is synced. */
static void sync_all(const char *folder) {
    char path[PATH_BYTES];
    struct stat info;
    names *list = malloc(sizeof *list);
    list_now(folder, list);
    if (stat(folder, &info) != 0) fail("read", folder);
    (void)snprintf(path, sizeof path, "%s/d-%llu", shadow, (number)info.st_ino);
    FILE *out = fopen(path, "w");
    if (out == NULL) fail("create", path);
    for (int i = 0; i < list->n; i++) {
        const name *one = &list->items[i];
        (void)fprintf(out, "%c %llu %s\n", one->is_folder ? 'd' : 'f', one->inode, one->text);
        char from[PATH_BYTES], to[PATH_BYTES];
        join(from, folder, one->text);
        (void)snprintf(to, sizeof to, "%s/f-%llu", shadow, one->inode);
        if (one->is_folder) {
            sync_all(from);
            continue;
        }
        size_t n = 0;
        char *text = read_all(from, &n);
        write_all(to, text, n, 0600);
        free(text);
    }
    if (fclose(out) != 0) fail("write", path);
    free(list);
}

int main(int n_args, char **args) {
    char after[PATH_BYTES], command[PATH_BYTES];
    struct stat info;
    if (n_args != 4) return 2;
    const char *disk = args[1];
    shadow = args[2];
    state = strtoull(args[3], NULL, 10);
    if (stat(disk, &info) != 0) fail("read", disk);
    present[n_present].inode = info.st_ino;
    (void)snprintf(present[n_present++].path, sizeof present->path, "%s", disk);
    find_present(disk);
    (void)snprintf(after, sizeof after, "%s.after", disk);
    put_folder(info.st_ino, after);
    (void)snprintf(command, sizeof command, "rm -rf '%s' '%s'/*", disk, shadow);
    if (system(command) != 0 || rename(after, disk) != 0) fail("replace", disk);
    sync_all(disk);
    return 0;
}
