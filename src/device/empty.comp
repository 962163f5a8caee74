// empty.comp: does nothing: what is timed is the way to the device and back.
#version 450
layout(local_size_x = 1) in;

void main() {}
