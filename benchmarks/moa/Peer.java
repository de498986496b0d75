import com.yahoo.labs.samoa.instances.Attribute;
import com.yahoo.labs.samoa.instances.DenseInstance;
import com.yahoo.labs.samoa.instances.Instance;
import com.yahoo.labs.samoa.instances.Instances;
import com.yahoo.labs.samoa.instances.InstancesHeader;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.BufferedOutputStream;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import moa.cluster.Cluster;
import moa.cluster.Clustering;
import moa.clusterers.AbstractClusterer;
import moa.clusterers.clustream.WithKmeans;
import moa.clusterers.clustree.ClusTree;
import moa.clusterers.streamkm.StreamKM;

/**
 * One of MOA's clusterers learns the rows of a file, one by one, then labels each by the nearest of its centres.
 *
 * Arguments: clusterer, rows (little-endian doubles), features, K, where to write the labels (big-endian ints).
 * Prints: seconds of learning, seconds of clustering and labelling, clusters.
 */
public class Peer {
    public static void main(String[] given) throws Exception {
        int d = Integer.parseInt(given[2]), k = Integer.parseInt(given[3]);
        double[][] rows = read(given[1], d);
        AbstractClusterer learner = clusterer(given[0], k, rows.length);
        ArrayList<Attribute> attributes = new ArrayList<>();
        for (int i = 0; i < d; i++) attributes.add(new Attribute("x" + i));
        Instances header = new InstancesHeader(new Instances("rows", attributes, 0));
        learner.setModelContext(new InstancesHeader(header));
        learner.prepareForUse();

        long start = System.nanoTime();
        for (double[] row : rows) {
            Instance event = new DenseInstance(1.0, row);
            event.setDataset(header);
            learner.trainOnInstance(event);
        }
        long learnt = System.nanoTime();
        List<double[]> centres = centres(learner, k);
        int[] labels = new int[rows.length];
        for (int i = 0; i < rows.length; i++) labels[i] = nearest(rows[i], centres);
        long done = System.nanoTime();

        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(given[4])))) {
            for (int label : labels) out.writeInt(label);
        }
        System.out.println((learnt - start) / 1e9 + " " + (done - learnt) / 1e9 + " " + centres.size());
    }

    static AbstractClusterer clusterer(String name, int k, int n) {
        switch (name) {
            case "CluStream":
                WithKmeans clustream = new WithKmeans();
                clustream.kOption.setValue(k);
                clustream.timeWindowOption.setValue(n);
                return clustream;
            case "ClusTree":
                ClusTree tree = new ClusTree();
                tree.horizonOption.setValue(n);
                return tree;
            case "StreamKM":
                StreamKM coreset = new StreamKM();
                coreset.numClustersOption.setValue(k);
                coreset.sizeCoresetOption.setValue(200 * k);
                coreset.lengthOption.setValue(n);
                return coreset;
            default:
                throw new IllegalArgumentException("no clusterer " + name);
        }
    }

    /** What it calls clusters; ClusTree has micro-clusters alone, which k-means then groups, as CluStream does. */
    static List<double[]> centres(AbstractClusterer learner, int k) {
        Clustering found = learner instanceof ClusTree
            ? WithKmeans.kMeans_rand(k, learner.getMicroClusteringResult())
            : learner.getClusteringResult();
        List<double[]> centres = new ArrayList<>();
        for (Cluster cluster : found.getClustering()) centres.add(cluster.getCenter());
        return centres;
    }

    static int nearest(double[] row, List<double[]> centres) {
        int best = -1;
        double least = Double.POSITIVE_INFINITY;
        for (int c = 0; c < centres.size(); c++) {
            double[] centre = centres.get(c);
            double distance = 0.0;
            for (int j = 0; j < row.length; j++) distance += (row[j] - centre[j]) * (row[j] - centre[j]);
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        return best;
    }

    static double[][] read(String path, int d) throws Exception {
        try (FileChannel channel = FileChannel.open(Path.of(path))) {
            MappedByteBuffer bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
            bytes.order(ByteOrder.LITTLE_ENDIAN);
            double[][] rows = new double[(int) (channel.size() / 8 / d)][d];
            for (double[] row : rows) for (int j = 0; j < d; j++) row[j] = bytes.getDouble();
            return rows;
        }
    }
}
