-I/etc
#in\
clude "x"
__asm__("");
