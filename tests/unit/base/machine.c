/* machine.c - free memory, as the files of the kernel and of control groups describe it. */
#include "base/machine.h"

#include "check.h"
#include "scratch.h"

static const double mib = 1024.0 * 1024.0;

static void put(const scratch *s, const char *name, const char *text) {
    char folder[STRAIT_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s/%s", s->path, name);
    *strrchr(folder, '/') = '\0';
    CHECK_OK(strait_file_make_folders(folder));
    CHECK_OK(strait_file_write(scratch_at(s, name), text, strlen(text)));
}

/* A machine with 1000 MiB free. */
static scratch make_machine(const char *groups) {
    scratch s = scratch_open();
    put(&s, "proc/meminfo", "MemTotal: 4096000 kB\nMemAvailable: 1024000 kB\n");
    put(&s, "proc/self/cgroup", groups);
    return s;
}

static void expect(scratch *s, double spare, double limit) {
    const strait_machine_memory m = strait_machine_read_memory(s->path);
    CHECK_NEAR(m.spare, spare, 1.0);
    CHECK_NEAR(m.group_limit, limit, 1.0);
    scratch_close(s);
}

static void reads_free_memory_without_groups(void **state) {
    (void)state;
    scratch s = make_machine("");
    expect(&s, 1000 * mib, 0);
}

static void reads_the_limit_of_version_2(void **state) {
    (void)state;
    scratch s = make_machine("0::/user.slice/a.service\n");
    put(&s, "sys/fs/cgroup/user.slice/a.service/memory.max", "314572800\n");
    put(&s, "sys/fs/cgroup/user.slice/a.service/memory.current", "104857600\n");
    put(&s, "sys/fs/cgroup/user.slice/a.service/memory.stat",
        "anon 1\nfile 73400320\ninactive_file 52428800\nactive_file 20971520\n");
    expect(&s, 250 * mib, 300 * mib);
}

static void reads_the_limit_of_a_group_around_ours(void **state) {
    (void)state;
    scratch s = make_machine("0::/outer/inner\n");
    put(&s, "sys/fs/cgroup/outer/inner/memory.max", "max\n");
    put(&s, "sys/fs/cgroup/outer/inner/memory.current", "1048576\n");
    put(&s, "sys/fs/cgroup/outer/memory.max", "104857600\n");
    put(&s, "sys/fs/cgroup/outer/memory.current", "41943040\n");
    expect(&s, 60 * mib, 100 * mib);
}

static void reads_the_limit_of_version_1(void **state) {
    (void)state;
    scratch s = make_machine("9:name=systemd:/x\n4:cpu,memory:/box\n0::/x\n");
    put(&s, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", "209715200\n");
    put(&s, "sys/fs/cgroup/memory/box/memory.usage_in_bytes", "157286400\n");
    put(&s, "sys/fs/cgroup/memory/box/memory.stat",
        "inactive_file 1\ntotal_inactive_file 104857600\n");
    put(&s, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(&s, "sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
    expect(&s, 150 * mib, 200 * mib);
}

/* The path names a group of the machine, whose folder is the mount itself inside a container. */
static void reads_the_mount_inside_a_container(void **state) {
    (void)state;
    scratch s = make_machine("4:memory:/docker/0123\n");
    put(&s, "sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
    put(&s, "sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n");
    expect(&s, 1, 100 * mib); // full, which is not "unknown"
}

static void ignores_a_limit_above_free_memory(void **state) {
    (void)state;
    scratch s = make_machine("0::/\n");
    put(&s, "sys/fs/cgroup/memory.max", "8589934592\n");
    put(&s, "sys/fs/cgroup/memory.current", "1\n");
    expect(&s, 1000 * mib, 0);
}

static void finds_the_disk_of_a_folder_to_come(void **state) {
    (void)state;
    scratch s = scratch_open();
    const double there = strait_machine_spare_disk(s.path);
    CHECK(there > 0.0);
    CHECK_NEAR(strait_machine_spare_disk(scratch_at(&s, "a/b/c")), there, 0.5 * there);
    CHECK(strait_machine_spare_disk("no/such/folder") > 0.0);
    scratch_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_free_memory_without_groups),
        cmocka_unit_test(reads_the_limit_of_version_2),
        cmocka_unit_test(reads_the_limit_of_a_group_around_ours),
        cmocka_unit_test(reads_the_limit_of_version_1),
        cmocka_unit_test(reads_the_mount_inside_a_container),
        cmocka_unit_test(ignores_a_limit_above_free_memory),
        cmocka_unit_test(finds_the_disk_of_a_folder_to_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
