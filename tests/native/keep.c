/* Preloaded into a program that exits: its segment stays, for a test to read. */
int shm_unlink(const char *name)
{
    (void)name;
    return 0;
}
