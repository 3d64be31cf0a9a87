// A file system that fails on demand, for one process: loaded with LD_PRELOAD, armed through ctypes.
// Only calls on paths below the root given to shim_arm are counted; each of them can be logged, refused, torn or fatal.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, KILL_AFTER, KILL_TORN, FAIL_CALL, FAIL_SYNC, FAIL_READ, FULL, LOG };

static int mode = OFF, error_number, log_fd = -1;
static long at, seen, written;
static char root[4096];

void shim_arm(int new_mode, long n, int number, const char *below, const char *log_file) {
    mode = OFF;
    at = n, error_number = number, seen = written = 0;
    snprintf(root, sizeof root, "%s", below);
    log_fd = log_file ? open(log_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
    mode = new_mode;
}

long shim_seen(void) { return seen; }

static const char *path_of(int fd, char *into, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, into, size - 1);
    into[length < 0 ? 0 : length] = 0;
    return into;
}

static int ours(const char *path) { return mode != OFF && path && !strncmp(path, root, strlen(root)); }

static void note(const char *what, const char *path) {
    if (log_fd >= 0) dprintf(log_fd, "%s %s\n", what, path);
}

// Before a call: whether it is refused. After it: whether it was the last.
static int refused(const char *what, const char *path) {
    if (mode == FAIL_READ) return 0;
    seen++;
    note(what, path);
    int sync = !strcmp(what, "fsync");
    if ((mode == FAIL_CALL && seen == at) || (mode == FAIL_SYNC && sync && ++written == at)) {
        errno = error_number;
        return 1;
    }
    return 0;
}

static void done(void) {
    if (mode == KILL_AFTER && seen == at) kill(getpid(), SIGKILL);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define ON_PATH(name, what, parameters, arguments, path)            \
    int name parameters {                                           \
        REAL(name);                                                 \
        if (!ours(path)) return real arguments;                     \
        if (refused(what, path)) return -1;                         \
        int result = real arguments;                                \
        done();                                                     \
        return result;                                              \
    }

ON_PATH(mkdir, "mkdir", (const char *path, mode_t bits), (path, bits), path)
ON_PATH(rmdir, "rmdir", (const char *path), (path), path)
ON_PATH(unlink, "unlink", (const char *path), (path), path)
ON_PATH(rename, "rename", (const char *path, const char *to), (path, to), path)

static const char *absolute(int folder, const char *path, char *into, size_t size) {
    if (path[0] == '/' || folder == AT_FDCWD) return path;
    path_of(folder, into, size);
    size_t length = strlen(into);
    snprintf(into + length, size - length, "/%s", path);
    return into;
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    char full[8192];
    const char *name = absolute(folder, path, full, sizeof full);
    if (!ours(name)) return real(folder, path, flags);
    if (refused("unlink", name)) return -1;
    int result = real(folder, path, flags);
    done();
    return result;
}

#define OPEN(name)                                                  \
    int name(const char *path, int flags, ...) {                    \
        REAL(name);                                                 \
        va_list rest;                                               \
        va_start(rest, flags);                                      \
        mode_t bits = va_arg(rest, mode_t);                         \
        va_end(rest);                                               \
        if (!ours(path)) return real(path, flags, bits);            \
        if (refused("open", path)) return -1;                       \
        int result = real(path, flags, bits);                       \
        done();                                                     \
        return result;                                              \
    }
OPEN(open)
OPEN(open64)

#define ON_FD(type, name, what, parameters, arguments)              \
    type name parameters {                                          \
        REAL(name);                                                 \
        char path[4096];                                            \
        if (mode == OFF || !ours(path_of(fd, path, sizeof path))) return real arguments; \
        if (refused(what, path)) return -1;                         \
        type result = real arguments;                               \
        done();                                                     \
        return result;                                              \
    }

ON_FD(int, fsync, "fsync", (int fd), (fd))
ON_FD(int, flock, "flock", (int fd, int operation), (fd, operation))

static size_t allowed(size_t count) {
    if (mode != FULL) return count;
    size_t left = written < at ? (size_t)(at - written) : 0;
    if (count > left) count = left;
    written += count;
    if (!count) errno = ENOSPC;
    return count;
}

#define WRITE(name, parameters, half, whole)                        \
    ssize_t name parameters {                                       \
        REAL(name);                                                 \
        char path[4096];                                            \
        if (mode == OFF || !ours(path_of(fd, path, sizeof path))) return real whole; \
        if (refused("write", path)) return -1;                      \
        if (count && !(count = allowed(count))) return -1;          \
        if (mode == KILL_TORN && seen == at) {                      \
            if (real half < 0) abort();                             \
            kill(getpid(), SIGKILL);                                \
        }                                                           \
        ssize_t result = real whole;                                \
        done();                                                     \
        return result;                                              \
    }
WRITE(write, (int fd, const void *from, size_t count), (fd, from, count / 2), (fd, from, count))
WRITE(pwrite, (int fd, const void *from, size_t count, off_t to), (fd, from, count / 2, to), (fd, from, count, to))
WRITE(pwrite64, (int fd, const void *from, size_t count, off64_t to), (fd, from, count / 2, to), (fd, from, count, to))

int posix_fallocate64(int fd, off64_t from, off64_t count) {
    REAL(posix_fallocate64);
    char path[4096];
    if (mode == OFF || !ours(path_of(fd, path, sizeof path))) return real(fd, from, count);
    if (refused("fallocate", path)) return error_number;
    // With an error number the file system promises room that it does not have, as some do.
    if (mode == FULL && !error_number && count > at) return ENOSPC;
    int result = real(fd, from, count);
    done();
    return result;
}

int posix_fallocate(int fd, off_t from, off_t count) { return posix_fallocate64(fd, from, count); }

static int unreadable(int fd) {
    char path[4096];
    if (mode != FAIL_READ || !ours(path_of(fd, path, sizeof path)) || ++seen != at) return 0;
    errno = error_number;
    return 1;
}

#define READ(name, parameters, arguments)                           \
    ssize_t name parameters {                                       \
        REAL(name);                                                 \
        return unreadable(fd) ? -1 : real arguments;                \
    }
READ(pread64, (int fd, void *into, size_t count, off64_t from), (fd, into, count, from))
READ(preadv64, (int fd, const struct iovec *into, int count, off64_t from), (fd, into, count, from))
READ(preadv64v2, (int fd, const struct iovec *into, int count, off64_t from, int flags), (fd, into, count, from, flags))
