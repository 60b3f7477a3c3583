/* Preloaded into a program, so that its segment stays after a clean end and a test can read it. */
int shm_unlink(const char *name)
{
    (void)name;
    return 0;
}
