/* Keep BYTES bytes in blocks of each size, free as many again, and wait: sizes FILE BYTES. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const size_t sizes[] = {24, 200, 3000, 50000, 400000};

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    size_t bytes = (size_t)atol(argv[2]);
    FILE *file = fopen(argv[1], "w");
    fprintf(file, "%d\n", getpid());
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t count = bytes / sizes[i];
        void **gone = malloc(count * sizeof *gone);
        for (size_t j = 0; j < count; j++) {
            if (malloc(sizes[i]) == NULL)
                return 1;
            gone[j] = malloc(sizes[i]);
        }
        for (size_t j = 0; j < count; j++)
            if (j % 2)
                free(gone[j]);
            else
                free(realloc(gone[j], sizes[i] + 8));
        free(gone);
        fprintf(file, "%zu %zu\n", sizes[i], count);
    }
    fprintf(file, "end\n");
    fflush(file);
    pause();
    return 0;
}
