/* removed SPANS POINT PASS: records this number of spans, prints "paused", and ends when its standard input closes. The
 * program is killed when it reaches POINT for the PASS-th time. Three values of POINT do not kill the program. With
 * "fork", a child inherits all open files and stays while the program writes a record; when the record is written, the
 * program prints "forked" and waits once more. With "rm", the file of the records is removed while the program writes a
 * record. With "counted", the program prints "counted" and waits after it has counted the files of /dev/shm. */
#include "dies.h"

#include "brick_removed.h"

#include <stdio.h>
#include <sys/syscall.h>

static int is_at(const char *point) { return fatal != NULL && strcmp(fatal, point) == 0; }

ssize_t write(int fd, const void *bytes, size_t length)
{
    int lives[2];
    char turn;
    if (length == sizeof(struct brick_removed) && is_at("fork") && pipe(lives) == 0 && fork() == 0) {
        close(lives[1]);
        _exit(read(lives[0], &turn, 1) != 0); /* the child ends when its parent ends */
    }
    if (length == sizeof(struct brick_removed) && is_at("rm")) {
        char link[32], path[128] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, path, sizeof path - 1) < 0 || unlink(path) != 0)
            abort();
    }
    return syscall(SYS_write, fd, bytes, length);
}

static void say_and_wait(const char *message)
{
    const size_t length = strlen(message);
    char turn;
    if (write(1, message, length) != (ssize_t)length || read(0, &turn, 1) < 0)
        abort();
}

static void at_point(const char *point)
{
    if (is_at("fork") && strcmp(point, "recorded") == 0)
        say_and_wait("\"forked\"\n");
    if (is_at("counted") && strcmp(point, "counted") == 0)
        say_and_wait("\"counted\"\n");
}

int main(int count, char **arguments)
{
    char turn;
    if (count != 4 || !dies(count - 1, arguments + 1))
        return 2;
    if (is_at("fork") || is_at("counted"))
        brick_test_point = at_point;
    const uint32_t brick = brick_name("b", 1, NULL);
    for (int spans = atoi(arguments[1]); spans > 0; spans--) {
        brick_begin(brick, NULL, NULL);
        brick_end(brick, NULL, 0, 0);
    }
    if (write(1, "\"paused\"\n", 9) != 9)
        return 3;
    return read(0, &turn, 1) < 0;
}
