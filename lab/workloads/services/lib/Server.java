// SPDX-License-Identifier: Apache-2.0
// A web server of the JDK: text of a size that the path names, a cache that ages.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Executors;

public class Server {
    public static void main(String[] args) throws Exception {
        Map<String, byte[]> cache = new LinkedHashMap<>();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 128);
        server.createContext("/", exchange -> {
            String[] parts = exchange.getRequestURI().getPath().split("/");
            int count = parts.length > 3 ? Integer.parseInt(parts[3]) : 1;
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < count; i++) {
                text.append("{\"id\":").append(i).append(",\"name\":\"item ").append(i).append("\"},");
            }
            byte[] bytes = text.toString().getBytes();
            synchronized (cache) {
                cache.put(parts.length > 2 ? parts[2] : "", bytes);
                if (cache.size() > 400) cache.remove(cache.keySet().iterator().next());
            }
            exchange.sendResponseHeaders(200, bytes.length);
            exchange.getResponseBody().write(bytes);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.start();
    }
}
