/* A CNI plugin that lets somebody else do the work: kproxy/cni/server.py says how they speak.
 *
 * The socket is the one named in KPROXY_CNI_SOCKET, or else SOCKET, or where that is not defined `kproxy-cni.sock` beside
 * the program. If nobody listens there, it executes PLUGIN with the same input. Where that is not defined, because the node
 * has no kproxy of its own, the runtime is told to try again later, and only VERSION is answered. Once a request is sent,
 * it is never sent again: what became of it is not known. Nothing is waited for longer than TIMEOUT seconds.
 *
 * kproxy/cni/install.py compiles it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef PLUGIN
#define PLUGIN ""
#endif
#ifndef SOCKET
#define SOCKET ""
#endif
#ifndef TIMEOUT
#define TIMEOUT 120
#endif

enum { IO_FAILURE = 5, TRY_AGAIN_LATER = 11, NOT_AVAILABLE = 50 };

extern char **environ;

/* The configuration's, as errors are to be told in it. */
static char version[16] = NEWEST;

static void find_version(const char *input)
{
    const char *key = strstr(input, "\"cniVersion\"");
    if (key == NULL)
        return;
    key += strlen("\"cniVersion\"");
    key += strspn(key, " \t\r\n:");
    size_t length = *key == '"' ? strspn(key + 1, "0123456789.") : 0;
    if (length > 0 && length < sizeof version && key[1 + length] == '"') {
        memcpy(version, key + 1, length);
        version[length] = '\0';
    }
}

static int fail(int code, const char *message, const char *details)
{
    printf("{\"cniVersion\": \"%s\", \"code\": %d, \"msg\": \"%s\", \"details\": \"%s\"}\n", version, code, message,
           details);
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

/* All of standard input, with a zero behind it; the caller frees. */
static char *slurp(size_t *length)
{
    size_t room = 1 << 16;
    char *data = malloc(room);
    *length = 0;
    while (data != NULL) {
        ssize_t got = read(0, data + *length, room - 1 - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return NULL;
        if (got == 0) {
            data[*length] = '\0';
            return data;
        }
        *length += (size_t)got;
        if (*length == room - 1)
            data = realloc(data, room *= 2);
    }
    return NULL;
}

static int reach(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = TIMEOUT};
    const char *named = getenv("KPROXY_CNI_SOCKET");
    if (named == NULL && SOCKET[0] != '\0')
        named = SOCKET;
    if (named != NULL) {
        if (strlen(named) >= sizeof address.sun_path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        strcpy(address.sun_path, named);
    } else {
        char own[sizeof address.sun_path];
        ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
        if (length < 0)
            return -1;
        own[length] = '\0';
        if ((size_t)length + 5 >= sizeof address.sun_path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        stpcpy(stpcpy(address.sun_path, own), ".sock");
    }
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        return -1;
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* for connect as well */
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(made, (struct sockaddr *)&address, sizeof address) < 0) {
        int why = errno;
        close(made);
        errno = why;
        return -1;
    }
    return made;
}

/* The plugin itself, with the input that was read already. */
static int execute(char *const *arguments, const char *input, size_t length)
{
    int file = memfd_create("stdin", 0);
    if (file < 0 || put(file, input, length) < 0 || lseek(file, 0, SEEK_SET) < 0 || dup2(file, 0) < 0)
        return fail(IO_FAILURE, "cannot pass the configuration on", strerror(errno));
    execv(PLUGIN, arguments);
    return fail(IO_FAILURE, "cannot execute " PLUGIN, strerror(errno));
}

/* What can be said where there is neither a daemon nor the plugin itself. */
static int nobody(const char *command)
{
    if (strcmp(command, "VERSION") == 0) {
        printf("{\"cniVersion\": \"%s\", \"supportedVersions\": [%s]}\n", version, VERSIONS);
        return 0;
    }
    char details[256];
    snprintf(details, sizeof details, "its socket: %s; kproxy overlay run --cni-socket serves it", strerror(errno));
    return fail(strcmp(command, "STATUS") == 0 ? NOT_AVAILABLE : TRY_AGAIN_LATER, "the CNI daemon does not answer",
                details);
}

/* A person, not a runtime: there is nothing to wait for on standard input. */
static int introduce(char *const *arguments)
{
    if (PLUGIN[0] != '\0') {
        execv(PLUGIN, arguments);
        return fail(IO_FAILURE, "cannot execute " PLUGIN, strerror(errno));
    }
    fprintf(stderr, "kproxy-cni, a CNI plugin: a container runtime starts it, and kproxy overlay run serves it\n"
                    "CNI protocol versions supported: %s\n", PLAIN_VERSIONS);
    return 0;
}

int main(int count, char **arguments)
{
    (void)count;
    size_t length, size = 0;
    int asked = 0;
    for (char **item = environ; *item != NULL; item++)
        asked |= strncmp(*item, "CNI_", 4) == 0;
    if (!asked)
        return introduce(arguments);
    const char *command = getenv("CNI_COMMAND"), *sandbox = getenv("CNI_NETNS");
    char *input = slurp(&length);
    if (input == NULL)
        return fail(IO_FAILURE, "cannot read the configuration", strerror(errno));
    find_version(input);
    int server = reach();
    if (server < 0 && PLUGIN[0] == '\0')
        return nobody(command != NULL ? command : "");
    if (server < 0)
        return execute(arguments, input, length);
    signal(SIGPIPE, SIG_IGN); /* a daemon that goes away is told as an error */

    for (char **item = environ; *item != NULL; item++)
        if (strncmp(*item, "CNI_", 4) == 0 || strncmp(*item, "PATH=", 5) == 0)
            size += strlen(*item) + 1;
    char *names = calloc(size + 1, 1), *end = names;
    if (names == NULL)
        return fail(IO_FAILURE, "no memory", strerror(errno));
    for (char **item = environ; *item != NULL; item++)
        if (strncmp(*item, "CNI_", 4) == 0 || strncmp(*item, "PATH=", 5) == 0)
            end = stpcpy(end, *item) + 1;

    int passed[2] = {open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), -1};
    if (passed[0] < 0)
        return fail(IO_FAILURE, "cannot open the network namespace", strerror(errno));
    /* The daemon may be where the container's namespace has no path. What is no namespace it will say. */
    if (sandbox != NULL && *sandbox != '\0')
        passed[1] = open(sandbox, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t descriptors = (passed[1] < 0 ? 1 : 2) * sizeof(int);
    uint32_t head[2] = {(uint32_t)size, (uint32_t)length};
    union {
        char space[CMSG_SPACE(sizeof passed)];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec part = {head, sizeof head};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = CMSG_SPACE(descriptors)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors);
    memcpy(CMSG_DATA(rights), passed, descriptors);
    if (sendmsg(server, &message, MSG_NOSIGNAL) != (ssize_t)sizeof head || put(server, names, size) < 0 ||
        put(server, input, length) < 0 || get(server, (char *)head, sizeof head) < 0)
        return fail(TRY_AGAIN_LATER, "the CNI daemon went away", strerror(errno));
    char *output = malloc((size_t)head[1] + 1);
    if (output == NULL || get(server, output, head[1]) < 0)
        return fail(TRY_AGAIN_LATER, "the CNI daemon went away", strerror(errno));
    if (put(1, output, head[1]) < 0)
        return 1;
    return (int)head[0];
}
