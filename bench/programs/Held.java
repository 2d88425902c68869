// SPDX-License-Identifier: Apache-2.0
// Held MODE: memory of a Java program with a known truth for bench/held.
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import sun.misc.Unsafe;

public class Held {
    public static void main(String[] arguments) throws Exception {
        String mode = arguments[0];
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Unsafe unsafe = (Unsafe) field.get(null);
        ArrayList<Object> keep = new ArrayList<>();
        long[] kept = new long[1 << 20];
        int used = 0;
        System.out.println("ready");
        for (;; Thread.sleep(20))
            for (int i = 0; i < 10; i++)
                switch (mode) {
                    case "unsafe-leak": unsafe.setMemory(unsafe.allocateMemory(800), 800, (byte) 1); break;
                    case "unsafe-kept":
                        kept[used] = unsafe.allocateMemory(800);
                        unsafe.setMemory(kept[used++ % kept.length], 800, (byte) 1);
                        break;
                    case "direct": keep.add(ByteBuffer.allocateDirect(5000).put(0, (byte) 1)); break;
                    default: keep.add(new byte[2000]); break;
                }
    }
}
