// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/** Compiled and run by one JVM: the compiler's arenas, threads, direct buffers and zlib all use malloc. */
public class Work {
    static long packed(int seed) {
        byte[] data = new byte[200_000];
        for (int i = 0; i < data.length; i++) data[i] = (byte) (i * seed % 61);
        Deflater deflater = new Deflater();
        deflater.setInput(data);
        deflater.finish();
        byte[] out = new byte[200_000];
        int length = deflater.deflate(out);
        deflater.end();
        CRC32 sum = new CRC32();
        sum.update(out, 0, length);
        return sum.getValue();
    }

    public static void main(String[] words) throws Exception {
        Map<Integer, Long> sums = new TreeMap<>();
        List<Thread> threads = new ArrayList<>();
        for (int t = 1; t <= 4; t++) {
            int seed = t;
            Thread thread = new Thread(() -> {
                long sum = packed(seed);
                ByteBuffer direct = ByteBuffer.allocateDirect(1 << 16);
                for (int i = 0; i < 1000; i++) direct.putLong(i * 8, sum + i);
                synchronized (sums) { sums.put(seed, direct.getLong(800)); }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println(sums);
        System.out.println(IntStream.range(0, 100_000).parallel().mapToLong(i -> (long) i * i % 97).sum());
        System.exit(6);
    }
}
