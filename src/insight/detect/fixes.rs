//! The title of each pattern, and the fix for each client library.

use super::Pattern;
use crate::insight::library::Library;

/// Returns the pattern in words.
pub fn title(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::QuorumListPolling => "polls with consistent LISTs",
        Pattern::UnpaginatedList => "lists whole collections in one response",
        Pattern::ObjectPolling => "polls one object",
        Pattern::ListAfterWatchEnd => "lists again after every watch",
        Pattern::ResyncStorm => "processes all of its objects periodically",
        Pattern::NoOpWrites => "writes objects without changing them",
        Pattern::WatchWithoutBookmarks => "watches without bookmarks",
        Pattern::IgnoredExpiry => "requests an expired version again",
        Pattern::IgnoredRetryAfter => "does not wait for Retry-After",
        Pattern::DiscoveryRefetch => "fetches discovery repeatedly",
        Pattern::ManyProcesses => "polls the same resource from many connections",
    }
}

/// Returns the fix for a client of this library.
pub fn fix(pattern: Pattern, library: Library) -> &'static str {
    match pattern {
        Pattern::QuorumListPolling => informer(library),
        Pattern::UnpaginatedList => pages(library),
        Pattern::ObjectPolling => wait_for_one(library),
        Pattern::ListAfterWatchEnd => go_on(library),
        Pattern::ResyncStorm => resync(library),
        Pattern::NoOpWrites => compare_first(library),
        Pattern::WatchWithoutBookmarks => bookmarks(library),
        Pattern::IgnoredExpiry => heed_expiry(library),
        Pattern::IgnoredRetryAfter => heed_retry_after(library),
        Pattern::DiscoveryRefetch => keep_discovery(library),
        Pattern::ManyProcesses => share(library),
    }
}

fn informer(library: Library) -> &'static str {
    match library {
        Library::Fabric8 => {
            "Replace the loop around list() by an informer: \
             client.pods().inNamespace(ns).withLabel(..).inform(handler), and read from its \
             getStore(). As a first step, list(new \
             ListOptionsBuilder().withResourceVersion(\"0\").build()) avoids etcd."
        }
        Library::Java => {
            "Replace the loop by a SharedInformerFactory and read from its Lister. As a first step \
             set resourceVersion(\"0\") on the list call."
        }
        Library::ClientGo => {
            "Replace the loop by a SharedInformerFactory and read from its Lister; with a selector \
             use NewSharedInformerFactoryWithOptions(.., WithTweakListOptions(..)). As a first step \
             set ListOptions{ResourceVersion: \"0\"}."
        }
        Library::ControllerRuntime => {
            "Read with mgr.GetClient(), which answers from the manager's cache, and not with \
             GetAPIReader(); index the field or label with mgr.GetFieldIndexer() and list by \
             client.MatchingFields."
        }
        Library::KubeRs => {
            "Replace the loop by reflector(store, watcher(api, watcher::Config::default())) and \
             read from the store. As a first step list with ListParams::default().match_any()."
        }
        Library::Python => {
            "Replace the loop by list once, then watch.Watch().stream(.., \
             resource_version=<the list's>), and keep the objects in a dict. As a first step pass \
             resource_version='0' to the list call."
        }
        Library::JavaScript => {
            "Replace the loop by makeInformer(kubeConfig, path, listFn) and read from its list(). \
             As a first step pass resourceVersion: '0' to the list call."
        }
        Library::Kubectl => {
            "Replace the loop around `kubectl get` by `kubectl get --watch`, or by `kubectl wait` \
             for a condition."
        }
        Library::Curl => {
            "Replace the loop by one request with ?watch=true&allowWatchBookmarks=true. Or add \
             ?resourceVersion=0 to the URL, which avoids etcd."
        }
        Library::Unknown => {
            "List once, then watch from the list's resourceVersion with allowWatchBookmarks=true. \
             Or at least set resourceVersion=0, which avoids etcd. Also send a User-Agent that \
             identifies the client."
        }
    }
}

fn pages(library: Library) -> &'static str {
    match library {
        Library::Fabric8 => {
            "Request pages: list(new ListOptionsBuilder().withLimit(500L).build()), continued by \
             withContinue(..); or select with withLabel(..). For repeated reads use an informer."
        }
        Library::ClientGo => {
            "Request pages with tools/pager (Limit: 500), or select by label or field. For \
             repeated reads use an informer."
        }
        Library::ControllerRuntime => {
            "Read with mgr.GetClient(), which answers from the manager's cache; with GetAPIReader() \
             pass client.Limit(500) and client.Continue(..)."
        }
        Library::KubeRs => {
            "Use ListParams::default().limit(500) and continue_token, or a reflector."
        }
        Library::Python => "Pass limit=500 and _continue to the list call, or select by label.",
        Library::Kubectl => "Leave --chunk-size at its default of 500, and select with -l or -n.",
        Library::Java | Library::JavaScript | Library::Curl | Library::Unknown => {
            "Request pages with limit=500 and continue, or select by label, field or namespace."
        }
    }
}

fn wait_for_one(library: Library) -> &'static str {
    match library {
        Library::Fabric8 => {
            "Wait with resource.waitUntilReady(..) or waitUntilCondition(..), which watch, instead \
             of a loop around get() or isReady(). For frequently read objects use an informer."
        }
        Library::Java => {
            "Watch the one object with fieldSelector=metadata.name=<name>, or use an informer."
        }
        Library::ClientGo => {
            "Wait with watchtools.UntilWithSync(..) over fieldSelector metadata.name, or read from \
             an informer's Lister, instead of wait.Poll around Get."
        }
        Library::ControllerRuntime => {
            "Read with mgr.GetClient(), which answers from the cache, and react to its events \
             instead of RequeueAfter around a GET."
        }
        Library::KubeRs => {
            "Wait with kube::runtime::wait::await_condition(api, name, condition), which watches."
        }
        Library::Python => {
            "Watch the one object: watch.Watch().stream(list_fn, \
             field_selector='metadata.name=<name>'), instead of a loop around read_namespaced_*."
        }
        Library::Kubectl | Library::Curl => {
            "Use `kubectl wait --for=condition=.. <object>`, which watches, instead of a loop."
        }
        Library::JavaScript | Library::Unknown => {
            "Watch the one object with fieldSelector=metadata.name=<name> instead of polling it."
        }
    }
}

fn go_on(library: Library) -> &'static str {
    match library {
        Library::Python => {
            "Keep the resource_version of the last event or bookmark, and open the next watch with \
             it; list again only after 410. Watch().stream without resource_version lists each \
             time."
        }
        Library::KubeRs => {
            "Use kube::runtime::watcher, which resumes a watch, instead of Api::watch in a loop."
        }
        Library::Fabric8 => {
            "Use inform(), which resumes a watch, instead of list() and watch() in a loop."
        }
        Library::ClientGo | Library::ControllerRuntime => {
            "Use an informer or watchtools.NewRetryWatcher, which resume a watch, instead of List \
             and Watch in a loop."
        }
        _ => {
            "A watch ends every few minutes: open the next one at the resourceVersion of the last \
             event or bookmark, and list again only after 410."
        }
    }
}

fn resync(library: Library) -> &'static str {
    match library {
        Library::ControllerRuntime => {
            "Leave cache.Options.SyncPeriod unset (10 h with jitter), filter resyncs with \
             predicate.ResourceVersionChangedPredicate, and read in Reconcile from mgr.GetClient() \
             with an index instead of listing by label from the apiserver."
        }
        Library::ClientGo => {
            "Create the informer with resync period 0, ignore updates whose resourceVersion did not \
             change, and read in the handler from Listers, not from the apiserver."
        }
        Library::Fabric8 => {
            "Pass a longer resync period (or 0) to inform(..), ignore updates whose resourceVersion \
             did not change, and read in the handler from the informer's store with an index."
        }
        Library::Java => {
            "Pass 0 as the resync period of sharedIndexInformerFor(..), and read from its Lister."
        }
        Library::KubeRs => {
            "Return Action::await_change() if no later action is needed, spread \
             Action::requeue(..) with jitter, and read from reflector stores."
        }
        Library::Python => {
            "A resync of the Python informer is a LIST: set its resync period to 0. In the handler \
             read from the listed objects, not from the apiserver."
        }
        _ => {
            "Do not process all objects on a timer: react to watch events, and read from the \
             watched objects. If a timer is needed, use hours with jitter."
        }
    }
}

fn compare_first(library: Library) -> &'static str {
    match library {
        Library::ControllerRuntime => {
            "Write only changes: use controllerutil.CreateOrPatch, or compare the status before \
             and after with equality.Semantic.DeepEqual, and return if nothing changed."
        }
        Library::ClientGo => {
            "Compare before writing: apiequality.Semantic.DeepEqual(old.Status, new.Status), and \
             skip Update and UpdateStatus when nothing changed."
        }
        Library::Fabric8 => {
            "Compare with the object of the informer's store before replace(), patch() or \
             createOr(..), and skip the write when nothing changed."
        }
        _ => {
            "Compare with the read object before a write, and skip the write if nothing changed: a \
             write without a change costs the apiserver several times a read."
        }
    }
}

fn bookmarks(library: Library) -> &'static str {
    match library {
        Library::Python => {
            "Pass allow_watch_bookmarks=True to the call that Watch().stream wraps, and keep the \
             version of BOOKMARK events for the next watch."
        }
        Library::JavaScript => {
            "Pass allowWatchBookmarks: true in the query of Watch.watch, and keep the version of \
             BOOKMARK events for the next watch."
        }
        Library::Fabric8 => {
            "Watch with new ListOptionsBuilder().withAllowWatchBookmarks(true), or use inform()."
        }
        _ => {
            "Add allowWatchBookmarks=true, and open the next watch at the version of the last \
             bookmark. Without bookmarks a quiet resource's version expires, and everything is \
             listed again."
        }
    }
}

fn heed_expiry(library: Library) -> &'static str {
    match library {
        Library::Python | Library::JavaScript | Library::Java => {
            "On 410 drop the resourceVersion, list without one, and watch from the new list's: an \
             expired version never becomes valid again. Newer releases of the client do so."
        }
        _ => {
            "On 410 drop the resourceVersion, list again, and watch from the new list's: an \
             expired version never becomes valid again."
        }
    }
}

fn heed_retry_after(library: Library) -> &'static str {
    match library {
        Library::Fabric8 => {
            "fabric8 retries on its own schedule and ignores Retry-After: raise \
             kubernetes.request.retry.backoffInterval, and send fewer requests (use an informer)."
        }
        Library::ClientGo | Library::ControllerRuntime => {
            "client-go honours Retry-After: look for a retry loop around it, or for several \
             clients in one process, and set QPS and Burst of rest.Config."
        }
        _ => "After 429 or 503 wait the seconds of Retry-After before a retry.",
    }
}

fn keep_discovery(library: Library) -> &'static str {
    match library {
        Library::Kubectl => {
            "Keep the discovery cache between runs: mount a volume at ~/.kube/cache, or pass a \
             persistent directory with --cache-dir. In containers it is empty each time."
        }
        Library::ClientGo | Library::ControllerRuntime => {
            "Use one cached discovery client and one RESTMapper for the life of the process \
             (memory.NewMemCacheClient, apiutil.NewDynamicRESTMapper), not one for each call."
        }
        Library::Python => {
            "Create one DynamicClient and keep it; each new one fetches discovery again. Or give it \
             a cache_file."
        }
        Library::Fabric8 => {
            "Keep one KubernetesClient, and avoid supports(..) and hasApiGroup(..) in loops."
        }
        _ => "Fetch discovery once and keep it; revalidate it with its ETag (If-None-Match).",
    }
}

fn share(library: Library) -> &'static str {
    match library {
        Library::Fabric8 | Library::Java => {
            "If these are threads of one process, let them share one informer. If they are \
             processes, let each watch its own selection, or run one Listless gateway for all."
        }
        Library::ControllerRuntime | Library::ClientGo => {
            "Let each process watch its own selection with an informer (for a node's pods \
             fieldSelector spec.nodeName), or run one Listless gateway for all."
        }
        Library::Kubectl | Library::Curl => {
            "Let one process watch and notify the others, or run one Listless gateway for all."
        }
        _ => {
            "Let each process list once and then watch its own selection, or run one Listless \
             gateway for all: it holds one copy and one watch for all of them."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARIES: &[Library] = &[
        Library::Fabric8,
        Library::Java,
        Library::ClientGo,
        Library::ControllerRuntime,
        Library::KubeRs,
        Library::Python,
        Library::JavaScript,
        Library::Kubectl,
        Library::Curl,
        Library::Unknown,
    ];

    #[test]
    fn every_pattern_has_a_fix_for_every_library() {
        for pattern in Pattern::ALL {
            for library in LIBRARIES {
                let fix = fix(*pattern, *library);
                assert!(
                    fix.ends_with('.') && !fix.contains("  "),
                    "{pattern:?} {library:?}: {fix}"
                );
            }
        }
    }
}
