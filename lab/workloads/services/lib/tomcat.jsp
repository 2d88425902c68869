<%-- SPDX-License-Identifier: Apache-2.0 --%><%-- Pages, JSON and a session cache that ages; the parameters say how much. --%><%@ page import="java.util.*, java.util.concurrent.*" %><%!
  static final Map<String, List<String>> CACHE = Collections.synchronizedMap(new LinkedHashMap<>() {
    protected boolean removeEldestEntry(Map.Entry<String, List<String>> eldest) { return size() > 1500; }
  });
%><%
  int count = Integer.parseInt(Objects.requireNonNullElse(request.getParameter("count"), "1"));
  String key = Objects.requireNonNullElse(request.getParameter("key"), "k");
  List<String> rows = new ArrayList<>();
  for (int i = 0; i < count; i++) rows.add("item " + i + " of " + key + ": " + Integer.toHexString((i + 7) * key.hashCode()));
  List<String> before = CACHE.put(key, rows);
  Map<String, Integer> words = new TreeMap<>();
  for (String row : before == null ? rows : before) for (String word : row.split(" ")) words.merge(word, 1, Integer::sum);
%><html><body><h1><%= key %></h1><table>
<% for (String row : rows) { %><tr><td><%= row.toUpperCase() %></td><td><%= row.length() %></td></tr>
<% } %></table><p><%= words.size() %> words</p><p>end</p></body></html>
