// SPDX-License-Identifier: Apache-2.0
/* The native half of Native.java. */
#include <jni.h>
#include <stdlib.h>
#include <string.h>

JNIEXPORT jlong JNICALL Java_Native_churn(JNIEnv *env, jclass type, jint rounds) {
    (void)env, (void)type;
    long sum = 0;
    for (int i = 1; i < rounds; i++) {
        char *block = malloc((size_t)(i % 5000 + 1));
        memset(block, i, (size_t)(i % 5000 + 1));
        sum += *block & 1;
        free(block);
    }
    return sum;
}
