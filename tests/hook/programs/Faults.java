// SPDX-License-Identifier: Apache-2.0
/** Faults null|crash: null pointers that the machine finds by SIGSEGV, and a fault of the machine itself. */
public final class Faults {
    private static int length(String text) {
        return text.length();
    }

    private static void nulls() {
        int caught = 0;
        for (int i = 0; i < 200000; i++) {
            try {
                caught += length(i % 1000 == 999 ? null : "text") == 4 ? 0 : 1;
            } catch (NullPointerException expected) {
                caught++;
            }
        }
        System.out.println("caught " + caught);
    }

    private static void crash() throws Exception {
        var field = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
        field.setAccessible(true);
        var method = field.getType().getMethod("putAddress", long.class, long.class);
        System.out.println("crashing");
        method.invoke(field.get(null), 8L, 1L);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("null")) {
            nulls();
        } else {
            crash();
        }
    }
}
