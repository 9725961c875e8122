int crash_library_object = 99;
static int hidden(int x) {
    return x * crash_library_object;
}
int crash_library_function(int x) {
    return hidden(x) + 1;
}
