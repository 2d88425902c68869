// SPDX-License-Identifier: Apache-2.0
// Calls a native library that allocates, from eight threads; `fault` reads through null in Java, which the JVM handles by SIGSEGV.
public class Native {
    static native long churn(int rounds);

    static int length(String text) {
        return text.length();
    }

    static String caught() {
        try {
            return "length " + length(null);
        } catch (NullPointerException error) {
            return "caught";
        }
    }

    public static void main(String[] words) throws Exception {
        System.load(words[0]);
        Thread[] threads = new Thread[8];
        long[] sums = new long[8];
        for (int i = 0; i < 8; i++) {
            final int at = i;
            threads[i] = new Thread(() -> sums[at] = churn(20000 + at));
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        int faults = 0;
        for (int i = 0; i < 30000; i++) if (caught().equals("caught")) faults++;
        System.out.println(java.util.Arrays.toString(sums) + " " + faults);
    }
}
