/* A CNI plugin that lets somebody else do the work: kproxy/cni/server.py says how they speak.
 *
 * The socket is the one named in KPROXY_CNI_SOCKET, or `kproxy-cni.sock` beside the program. If nobody listens there, it
 * executes PLUGIN with the same input. Once a request is sent, it is never sent again: what became of it is not known.
 *
 * cc -O2 -DPLUGIN='"/usr/bin/kproxy-cni"' -o kproxy-cni launcher.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef PLUGIN
#define PLUGIN "/usr/bin/kproxy-cni"
#endif

extern char **environ;

static int fail(int code, const char *message)
{
    printf("{\"cniVersion\": \"1.1.0\", \"code\": %d, \"msg\": \"%s\", \"details\": \"%s\"}\n", code, message,
           strerror(errno));
    return 1;
}

static int put(int to, const char *data, size_t length)
{
    while (length > 0) {
        ssize_t written = write(to, data, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return -1;
        data += written;
        length -= (size_t)written;
    }
    return 0;
}

static int get(int from, char *data, size_t length)
{
    while (length > 0) {
        ssize_t got = read(from, data, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = ECONNRESET;
        if (got <= 0)
            return -1;
        data += got;
        length -= (size_t)got;
    }
    return 0;
}

/* All of standard input; the caller frees. */
static char *slurp(size_t *length)
{
    size_t room = 1 << 16;
    char *data = malloc(room);
    *length = 0;
    while (data != NULL) {
        ssize_t got = read(0, data + *length, room - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return NULL;
        if (got == 0)
            return data;
        *length += (size_t)got;
        if (*length == room)
            data = realloc(data, room *= 2);
    }
    return NULL;
}

static int reach(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *named = getenv("KPROXY_CNI_SOCKET");
    if (named != NULL) {
        if (strlen(named) >= sizeof address.sun_path)
            return -1;
        strcpy(address.sun_path, named);
    } else {
        char own[sizeof address.sun_path];
        ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
        if (length < 0)
            return -1;
        own[length] = '\0';
        if ((size_t)length + 5 >= sizeof address.sun_path)
            return -1;
        stpcpy(stpcpy(address.sun_path, own), ".sock");
    }
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made >= 0 && connect(made, (struct sockaddr *)&address, sizeof address) < 0) {
        close(made);
        return -1;
    }
    return made;
}

/* The plugin itself, with the input that was read already. */
static int execute(char *const *arguments, const char *input, size_t length)
{
    int file = memfd_create("stdin", 0);
    if (file < 0 || put(file, input, length) < 0 || lseek(file, 0, SEEK_SET) < 0 || dup2(file, 0) < 0)
        return fail(5, "cannot pass the configuration on");
    execv(PLUGIN, arguments);
    return fail(5, "cannot execute " PLUGIN);
}

int main(int count, char **arguments)
{
    (void)count;
    size_t length, size = 0;
    int asked = 0;
    for (char **item = environ; *item != NULL; item++)
        asked |= strncmp(*item, "CNI_", 4) == 0;
    if (!asked) { /* a person, not a runtime: there is nothing to wait for on standard input */
        execv(PLUGIN, arguments);
        return fail(5, "cannot execute " PLUGIN);
    }
    char *input = slurp(&length);
    if (input == NULL)
        return fail(5, "cannot read the configuration");
    int server = reach();
    if (server < 0)
        return execute(arguments, input, length);

    for (char **item = environ; *item != NULL; item++)
        if (strncmp(*item, "CNI_", 4) == 0 || strncmp(*item, "PATH=", 5) == 0)
            size += strlen(*item) + 1;
    char *names = calloc(size + 1, 1), *end = names;
    if (names == NULL)
        return fail(5, "no memory");
    for (char **item = environ; *item != NULL; item++)
        if (strncmp(*item, "CNI_", 4) == 0 || strncmp(*item, "PATH=", 5) == 0)
            end = stpcpy(end, *item) + 1;

    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return fail(5, "cannot open the network namespace");
    uint32_t head[2] = {(uint32_t)size, (uint32_t)length};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec part = {head, sizeof head};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &home, sizeof home);
    if (sendmsg(server, &message, MSG_NOSIGNAL) != (ssize_t)sizeof head || put(server, names, size) < 0 ||
        put(server, input, length) < 0 || get(server, (char *)head, sizeof head) < 0)
        return fail(11, "the CNI daemon went away");
    char *output = malloc((size_t)head[1] + 1);
    if (output == NULL || get(server, output, head[1]) < 0)
        return fail(11, "the CNI daemon went away");
    if (put(1, output, head[1]) < 0)
        return 1;
    return (int)head[0];
}
