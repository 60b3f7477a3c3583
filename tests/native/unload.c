/* unload WRITER.so: loads the writer as a library, unloads it while a thread that recorded with it still runs, and
 * loads it again. After each step, prints how many spans it recorded, and waits. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t turn;
static uint32_t (*name)(const char *text, size_t length, const char *category);
static unsigned (*begin)(uint32_t brick, const void *key, const uint64_t *step);
static unsigned (*end)(uint32_t brick, const void *key, uint64_t elements, uint64_t bytes);

static void *load(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW);
    if (handle == NULL || (*(void **)&name = dlsym(handle, "brick_name")) == NULL
        || (*(void **)&begin = dlsym(handle, "brick_begin")) == NULL
        || (*(void **)&end = dlsym(handle, "brick_end")) == NULL)
        return NULL;
    return handle;
}

static void record(int many)
{
    uint32_t brick = name("b", 1, NULL);
    while (many-- > 0) {
        begin(brick, NULL, NULL);
        end(brick, NULL, 0, 0);
    }
}

static void *run(void *unused)
{
    record(2);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return unused;
}

static int report_spans(int spans)
{
    char go;
    printf("%d\n", spans);
    fflush(stdout);
    return read(0, &go, 1) == 1;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    int status;
    void *handle = count == 2 ? load(arguments[1]) : NULL;
    if (handle == NULL || pthread_barrier_init(&turn, NULL, 2) != 0 || pthread_create(&thread, NULL, run, NULL) != 0)
        return 2;
    pthread_barrier_wait(&turn);
    record(3);
    if (!report_spans(5))
        return 3;
    if (dlclose(handle) != 0 || dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD) != NULL)
        return 4; /* check that the library is really unloaded */
    pid_t child = fork(); /* a fork shows that the library's fork handlers are also removed */
    if (child == 0)
        _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0 || !report_spans(0))
        return 5;
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
    if (load(arguments[1]) == NULL)
        return 6;
    record(7);
    return report_spans(7) ? 0 : 7;
}
