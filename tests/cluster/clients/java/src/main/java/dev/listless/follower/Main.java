package dev.listless.follower;

import com.google.gson.Gson;
import io.kubernetes.client.common.KubernetesObject;
import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedIndexInformer;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.openapi.models.V1Pod;
import io.kubernetes.client.openapi.models.V1PodList;
import io.kubernetes.client.util.Config;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/**
 * Follows one namespace with shared informers, on one client configured from KUBECONFIG alone.
 *
 * <p>Prints a line when everything follows. After a line {@code settle} on its standard input, it waits
 * until all copies hold the object {@code marker}. Then it prints the copies.
 */
public final class Main {
  private static final long RESYNC_MILLIS = 2000;
  private static final long SETTLE_NANOS = 120_000_000_000L;

  private final Map<String, SharedIndexInformer<? extends KubernetesObject>> followers =
      new LinkedHashMap<>();
  private final Map<String, Integer> counts = new TreeMap<>();
  private final List<String> errors = new ArrayList<>();

  private Main() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      throw new IllegalArgumentException("usage: NAMESPACE INSTANCE");
    }
    new Main().run(arguments[0]);
    System.exit(0);
  }

  private void run(String namespace) throws Exception {
    ApiClient client = Config.defaultClient();
    client.setHttpClient(
        client.getHttpClient().newBuilder().readTimeout(java.time.Duration.ZERO).build());
    follow(client, namespace, "", null);
    follow(client, namespace, "-in", "churn=in");
    while (!followers.values().stream().allMatch(SharedIndexInformer::hasSynced)) {
      Thread.sleep(50);
    }
    System.out.println("{\"ready\": true}");
    new BufferedReader(new InputStreamReader(System.in)).readLine();
    long deadline = System.nanoTime() + SETTLE_NANOS;
    while (System.nanoTime() < deadline
        && !followers.values().stream().allMatch(it -> held(it).containsKey("marker"))) {
      Thread.sleep(50);
    }
    Map<String, Map<String, String>> caches = new TreeMap<>();
    followers.forEach((name, informer) -> caches.put(name, held(informer)));
    synchronized (this) {
      System.out.println(new Gson().toJson(
          Map.of("caches", caches, "counts", counts, "errors", errors)));
    }
  }

  /** A factory holds one informer per type, so each selector has its own. */
  private void follow(ApiClient client, String namespace, String suffix, String selector) {
    SharedInformerFactory factory = new SharedInformerFactory(client);
    CoreV1Api api = new CoreV1Api(client);
    listen("pods" + suffix + "@informer", factory.sharedIndexInformerFor(
        parameters -> api.listNamespacedPod(namespace)
            .labelSelector(selector)
            .resourceVersion(parameters.resourceVersion)
            .timeoutSeconds(parameters.timeoutSeconds)
            .watch(parameters.watch)
            .buildCall(null),
        V1Pod.class, V1PodList.class, RESYNC_MILLIS, (type, failure) -> failed(type, failure)));
    listen("configmaps" + suffix + "@informer", factory.sharedIndexInformerFor(
        parameters -> api.listNamespacedConfigMap(namespace)
            .labelSelector(selector)
            .resourceVersion(parameters.resourceVersion)
            .timeoutSeconds(parameters.timeoutSeconds)
            .watch(parameters.watch)
            .buildCall(null),
        V1ConfigMap.class, V1ConfigMapList.class, RESYNC_MILLIS,
        (type, failure) -> failed(type, failure)));
    factory.startAllRegisteredInformers();
  }

  private <T extends KubernetesObject> void listen(String name, SharedIndexInformer<T> informer) {
    followers.put(name, informer);
    informer.addEventHandler(new ResourceEventHandler<T>() {
      @Override
      public void onAdd(T object) {
        count("added");
      }

      @Override
      public void onUpdate(T old, T object) {
        boolean same = Objects.equals(version(old), version(object));
        count(same ? "resynced" : "updated");
      }

      @Override
      public void onDelete(T object, boolean finalStateUnknown) {
        count(finalStateUnknown ? "missed a deletion" : "deleted");
      }
    });
  }

  private static Map<String, String> held(SharedIndexInformer<? extends KubernetesObject> informer) {
    Map<String, String> held = new TreeMap<>();
    for (KubernetesObject object : informer.getIndexer().list()) {
      held.put(object.getMetadata().getName(), version(object));
    }
    return held;
  }

  private static String version(KubernetesObject object) {
    return object.getMetadata().getResourceVersion();
  }

  private synchronized void count(String what) {
    counts.merge(what, 1, Integer::sum);
  }

  private synchronized void failed(Class<?> type, Throwable failure) {
    errors.add("informer of " + type.getSimpleName() + ": " + failure);
  }
}
