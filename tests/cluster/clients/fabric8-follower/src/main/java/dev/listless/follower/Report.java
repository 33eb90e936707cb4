package dev.listless.follower;

import io.fabric8.kubernetes.client.utils.Serialization;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What all followers counted and complained about; printed as one line of JSON. */
final class Report {
  private final Map<String, Integer> counts = new TreeMap<>();
  private final List<String> errors = new ArrayList<>();

  synchronized void count(String what) {
    counts.merge(what, 1, Integer::sum);
  }

  synchronized void failed(String who, Throwable failure) {
    errors.add(who + ": " + failure);
  }

  synchronized void failed(String what) {
    errors.add(what);
  }

  /** The line, with the resourceVersion of each object in each cache, by name. */
  synchronized String line(Map<String, Map<String, String>> caches) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("caches", caches);
    line.put("counts", counts);
    line.put("errors", errors);
    return Serialization.asJson(line).replaceAll("\\s*\\n\\s*", " ");
  }
}
