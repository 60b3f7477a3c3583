/* secret.c - what brick_secret.c has for itself. */
#include "brick_secret.c"

int secret_passes(int error);
int secret_passes(int error) { return passes(error); }
